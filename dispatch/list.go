package dispatch

// Query selects dispatches for a list.
type Query struct {
	Status Status   // as of now; "" for any
	Region string   // "" for any
	Text   string   // in the id, the external id, the address or the note; "" for any
	Driver DriverID // who has it; "" for anyone or no one
	Page
}

// Page is a part of a list: after where Cursor points, and at most Limit long. A cursor comes with the page before.
type Page struct {
	Limit  int
	Cursor string
}
