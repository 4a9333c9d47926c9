"""Methods of clients that share moments of their features: means, second moments, covariances."""
