"""The documentation: its pages read, its commands run, its generated parts and its site made."""
