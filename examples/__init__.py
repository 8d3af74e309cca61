"""Small jobs that know nothing of transit."""
