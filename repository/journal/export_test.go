package journal

// What the tests see of the package.

const MaxDetail = maxDetail
