package runs

import "firsttap/dispatch/cronjob"

// What the tests see of the package.

const MaxError = maxError
const MaxResult = maxResult

func (r *RunRow) Run() cronjob.Run { return r.run() }
