"""The networks of Fathom, one file each: our own definitions, of the source of 2019-12 (rdadolf/fathom, 1dc013d).

Oddities that change what is computed are kept, and named in each file. What differs from the original everywhere: the
data are made up; the optimizers are torch's, whose epsilon stands elsewhere in the formula; images are [3, height,
width]; nothing that the original does between two steps is here (reading data, decoding, evaluation, summaries).
"""
