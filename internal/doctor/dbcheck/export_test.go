package dbcheck

// What the tests see of the package.

const CheckClock = checkClock
