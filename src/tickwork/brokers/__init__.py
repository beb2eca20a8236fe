"""Lanes over brokers: one module for each, all under the same promises."""
