package scale

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"firsttap/internal/servertest"
	"firsttap/systemtest"
)

// streamsPerProcess is how many streams an instance gets, and how many a process of phones opens. An instance has 20,000 at most, and some
// machines let a process open no more files than that.
const streamsPerProcess = 18_000

// Live streams, FIRSTTAP_STREAMS of them over as many instances as are needed, two at least: the resident memory of the instances for each
// when all are open, and later, after the dispatches; the processor time for each and a dispatch that all may have; and when the median and
// the last stream got it, in milliseconds from the request that made it.
func BenchmarkStreams(b *testing.B) {
	n := int(number(b, "FIRSTTAP_STREAMS", "2000"))
	database, redis := servertest.StartMariaDB(b).URL(b), servertest.RedisURL(b)
	var instances []*systemtest.Instance
	for range max(2, (n+streamsPerProcess-1)/streamsPerProcess) {
		instances = append(instances, systemtest.Start(b, "FIRSTTAP_DATABASE_URL="+database, "FIRSTTAP_REDIS_URL="+redis))
	}
	drivers := systemtest.MakeDrivers(b, instances[0], n)
	sum := func(of func(i *systemtest.Instance) float64) (total float64) {
		for _, i := range instances {
			total += of(i)
		}
		return total
	}
	memory := func(i *systemtest.Instance) float64 { return float64(i.Memory()) }
	processor := func(i *systemtest.Instance) float64 { return i.CPU().Seconds() }
	before, began := sum(memory), time.Now()
	var phones []*phonesProcess
	for k, i := range instances {
		phones = append(phones, startPhones(b, i, drivers[n*k/len(instances):n*(k+1)/len(instances)]))
	}
	for _, p := range phones {
		p.read() // all are open
	}
	b.ReportMetric(time.Since(began).Seconds(), "opening-s")
	b.ReportMetric((sum(memory)-before)/float64(n)/1000, "kB/stream")
	var medians, lasts []time.Duration
	worked := sum(processor)
	for range repeats {
		asked := time.Now()
		systemtest.MakeDispatch(b, instances[0])
		var took []time.Duration
		for _, p := range phones {
			for _, at := range p.read() {
				took = append(took, time.UnixMicro(at).Sub(asked))
			}
		}
		if len(took) != n {
			b.Fatalf("%d streams of %d got the offer", len(took), n)
		}
		median, last := middleAndLast(took)
		medians, lasts = append(medians, median), append(lasts, last)
	}
	b.ReportMetric((sum(memory)-before)/float64(n)/1000, "kB/stream-later")
	b.ReportMetric((sum(processor)-worked)/float64(n*repeats)*1e6, "instances-us/event")
	report(b, "median-stream", medians)
	report(b, "last-stream", lasts)
	b.ReportMetric(0, "ns/op")
}

// phonesProcess is a process that is the phones of many drivers; see bePhones.
type phonesProcess struct {
	b    *testing.B
	says *bufio.Reader
}

func startPhones(b *testing.B, i *systemtest.Instance, drivers []systemtest.Driver) *phonesProcess {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), phonesOf+"="+strings.TrimPrefix(i.URL, "http://"))
	var tokens strings.Builder
	for _, d := range drivers {
		fmt.Fprintln(&tokens, d.Token)
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(tokens.String()), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &phonesProcess{b, bufio.NewReader(out)}
}

// read returns the numbers of the next line that the process prints.
func (p *phonesProcess) read() (numbers []int64) {
	p.b.Helper()
	line, err := p.says.ReadString('\n')
	if err != nil {
		p.b.Fatal("the phones have ended: ", err)
	}
	for word := range strings.FieldsSeq(line) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			p.b.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}
