// Command picture draws the curves of docs/scaling.md: it reads what `make bench-scale` prints, and writes an SVG picture.
//
//	make bench-scale ... | tee figures; go run -C loadtest/picture . < figures > docs/scaling.svg
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// charts are the benchmarks that are drawn, side by side, with their metrics.
var charts = []struct {
	benchmark, title string
	metrics          []string
}{
	{"Scale", "drivers", []string{"last-push", "first-push", "preview", "board", "drivers-search", "drivers-by-name", "my-offers"}},
	{"Open", "open dispatches", []string{"board", "search-common", "tap", "list", "search-rare"}},
}

const (
	width  = 14 * vg.Centimeter // of a chart
	height = 10 * vg.Centimeter
)

func main() {
	log.SetFlags(0)
	figures, err := read(os.Stdin)
	if err == nil {
		err = write(os.Stdout, figures)
	}
	if err != nil {
		log.Fatal("picture: ", err)
	}
}

// curves are points by benchmark and metric.
type curves map[string]map[string]plotter.XYs

var (
	result = regexp.MustCompile(`^Benchmark(\w+)/(\d+)\S*\s+1\s(.*)`)
	metric = regexp.MustCompile(`(\S+)\s+(\S+)-ms\b`)
)

// read reads the lines of benchmarks, and passes over others.
func read(in io.Reader) (curves, error) {
	all := curves{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		found := result.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		size, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return nil, err
		}
		if all[found[1]] == nil {
			all[found[1]] = map[string]plotter.XYs{}
		}
		for _, m := range metric.FindAllStringSubmatch(found[3], -1) {
			ms, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, err
			}
			all[found[1]][m[2]] = append(all[found[1]][m[2]], plotter.XY{X: size, Y: ms})
		}
	}
	return all, lines.Err()
}

// write draws the charts that have at least two points.
func write(out io.Writer, all curves) error {
	var drawn []*plot.Plot
	for _, c := range charts {
		p, err := chart(c.title, c.metrics, all[c.benchmark])
		if err != nil {
			return err
		}
		if p != nil {
			drawn = append(drawn, p)
		}
	}
	if len(drawn) == 0 {
		return fmt.Errorf("the input has no benchmark of two sizes")
	}
	picture := vgsvg.New(width*vg.Length(len(drawn)), height)
	canvas := draw.New(picture)
	for k, p := range drawn {
		left := width * vg.Length(k)
		p.Draw(draw.Crop(canvas, left+vg.Points(8), left+width-canvas.Size().X-vg.Points(24), vg.Points(8), -vg.Points(8)))
	}
	_, err := picture.WriteTo(out)
	return err
}

// chart returns nil if there are fewer than two points.
func chart(title string, metrics []string, points map[string]plotter.XYs) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "milliseconds by the number of " + title
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(powers), plot.TickerFunc(powers)
	p.Y.Min, p.Y.Max = 1, 1000
	p.Legend.Top, p.Legend.Left = true, true
	var curve []any
	for _, name := range metrics {
		if at := points[name]; len(at) > 1 {
			slices.SortFunc(at, func(a, b plotter.XY) int { return int(a.X - b.X) })
			curve = append(curve, strings.ReplaceAll(name, "-", " "), at)
		}
	}
	if curve == nil {
		return nil, nil
	}
	p.Add(plotter.NewGrid())
	return p, plotutil.AddLinePoints(p, curve...)
}

// powers marks each power of ten.
func powers(low, high float64) (ticks []plot.Tick) {
	for at := 1.0; at <= high; at *= 10 {
		if at >= low {
			ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', -1, 64)})
		}
	}
	return ticks
}
