"""The files of a starter project, as `tickwork init` puts them down."""
