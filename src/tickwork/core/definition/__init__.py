"""The workflow document: its model, validation, references, graph, plan and conditions."""
