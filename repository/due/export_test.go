package due

// What the tests see of the package.

const MaxFailures = maxFailures
