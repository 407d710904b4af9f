"""How many replicas of which kind serve a load within an objective, on the fewest devices.

A kind of replica is devices that share matrices, or ranks that share experts. Of each the least number of replicas that
serves the load is looked for; of each two kinds, the least numbers of one to compute prompts and of the other to
decode. All that were served on the way are kept, so what each gives and takes can be compared.
"""
