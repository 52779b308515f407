"""The ways to run the steps of a layer, a folder each."""
