package testkit

import (
	"strings"
	"sync"
)

// LogBuffer keeps what a logger writes. It is safe for concurrent use.
type LogBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Count is how often s was written.
func (b *LogBuffer) Count(s string) int { return strings.Count(b.String(), s) }

func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Drain returns what was written since the last Drain, and forgets it.
func (b *LogBuffer) Drain() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
