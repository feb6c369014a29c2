package drivers

// What the tests see of the package.

type (
	RegionCounts = regionCounts
	CountKey     = countKey
	DriverCount  = driverCount
	IndexEntry   = indexEntry
)

const CountSlots = countSlots

var (
	DriverTerms = driverTerms
	EntriesOf   = entriesOf
)

func (c regionCounts) Add(entries []indexEntry, n int) { c.add(entries, n) }

func (row *Row) Words() []string { return row.words() }
