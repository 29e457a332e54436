"""What coding agents need to work in a sandbox: profiles as data, and what one run is given by them."""
