package poll

// What the tests see of the package.

// Keep makes w the latest answer.
func (p *Poll) Keep(w *Waiting) { p.latest.Store(w) }

// Busy has a statement be under way until done is called.
func (p *Poll) Busy() (done func()) {
	p.asking <- struct{}{}
	return func() { <-p.asking }
}
