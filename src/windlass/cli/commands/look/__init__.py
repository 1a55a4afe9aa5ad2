"""Commands that show what a cluster does, did and costs."""
