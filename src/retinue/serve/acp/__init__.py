"""Front end for editors: the Agent Client Protocol over lines on standard input and output."""
