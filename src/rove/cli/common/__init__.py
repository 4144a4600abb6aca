"""What commands share: options, output, progress, errors of missing packages."""
