"""What a finished run says: the numbers, words and looks that pages and figures share. Numpy only."""
