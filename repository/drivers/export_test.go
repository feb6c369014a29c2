package drivers

// What the tests see of the package.

type (
	CountChanges = countChanges
	CountKey     = countKey
	DriverCount  = driverCount
	IndexEntry   = indexEntry
)

const CountSlots = countSlots

var DriverTerms = driverTerms

func (c countChanges) Add(entries []indexEntry, n int) { c.add(entries, n) }

func (row *Row) Entries() ([]indexEntry, error) { return row.entries() }

func (row *Row) Words() []string { return row.words() }

// CountKeyOf returns a key, and CountOf a count, with those fields.
func CountKeyOf(region, class string, height float64, slot int) CountKey {
	return CountKey{region: region, vehicleClass: class, workingHeightM: height, slot: slot}
}

func CountOf(drivers, onDuty int) DriverCount { return DriverCount{drivers: drivers, onDuty: onDuty} }
