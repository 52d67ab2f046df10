"""Train and compare: split, train at several epsilons, score, choose hyper-parameters, store models."""
