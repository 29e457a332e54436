"""Rolling a plan back, restoring single paths, and undoing effects outside of the sandboxes."""
