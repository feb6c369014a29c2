package board

// What the tests see of the package.

const MaxSupplyPoints = maxSupplyPoints
const MaxUnseenIDs = maxUnseenIDs
