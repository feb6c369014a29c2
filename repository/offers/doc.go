// Package offers keeps what became of offers: what each driver was offered, saw, tapped and declined. It owns the tables offers and taps.
//
//   - taps.go and taps_read.go: the ledger of taps, and who was how late
//   - offers.go, offered.go and contacts.go: an offer as a driver has it, all offers of a dispatch, and their numbers by round
package offers
