"""The operator process: watches, translation, the extender, the writer, leadership."""
