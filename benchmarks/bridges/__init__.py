"""What bridges move, from the broker into stores, and what that costs."""
