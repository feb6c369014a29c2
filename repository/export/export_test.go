package export

// What the tests see of the package.

const ExportedAtOnce = exportedAtOnce
