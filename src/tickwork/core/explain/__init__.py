"""Answers for people: why, why not, histories, previews and the ledger of occurrences."""
