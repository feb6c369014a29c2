package dispatches

import (
	"firsttap/repository/database"
	"firsttap/repository/search"
)

// WordIndex is the index of dispatches by words.
var WordIndex = search.Index{Entries: "dispatch_words", ID: "dispatch_id", Rows: "dispatches"}

// Words returns the words by which the dispatch is found: of the external id, also without its punctuation, the address and the note.
func (row *Row) Words() []string {
	externalID := database.StringOrEmpty(row.ExternalID)
	names := []string{externalID, search.WithoutPunctuation(search.Normalized(externalID))}
	return search.WordsOf(names, row.SiteAddress, row.Note)
}

// sameText reports whether the rows are found by the same words.
func (row *Row) sameText(other *Row) bool {
	return database.StringOrEmpty(row.ExternalID) == database.StringOrEmpty(other.ExternalID) &&
		row.SiteAddress == other.SiteAddress && row.Note == other.Note
}

// text returns all the text by which the dispatch is found.
func (row *Row) text() string {
	return database.StringOrEmpty(row.ExternalID) + " " + row.SiteAddress + " " + row.Note
}

// ForgetWords deletes the words by which a dispatch is found.
func ForgetWords(tx database.Tx, id string) error {
	var row Row
	if err := tx.Raw("SELECT external_id, site_address, note FROM dispatches WHERE id = ?", id).Scan(&row).Error; err != nil {
		return err
	}
	return WordIndex.Remove(tx, id, row.Words())
}
