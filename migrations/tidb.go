package migrations

import "io/fs"

// serverFiles returns the migrations of a server. TiDB has MySQL's, but for those that the folder tidb has, too: the same versions lead
// to the same schema by statements that TiDB takes.
func serverFiles(dialect Dialect) (all []*file, err error) {
	folders := []Dialect{MySQL}
	if dialect == TiDB {
		folders = append(folders, TiDB)
	}
	for _, d := range folders {
		folder, err := fs.Sub(files, string(d))
		if err != nil {
			return nil, err
		}
		read, err := readFiles(folder)
		if err != nil {
			return nil, err
		}
		all = append(all, read...) // of two files of a version the later one counts
	}
	return all, nil
}

// onTiDB adapts the journal to TiDB. A transaction there sees only the tables that existed when it began. Every FirstTap that migrated a TiDB
// had a journal.
func (j *journal) onTiDB() {
	j.first, j.lastUnjournaled = true, 0
}
