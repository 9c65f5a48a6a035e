package simulate

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// colours of the reports on a page, in their order.
var colours = [...]string{"#2563a8", "#c2571a", "#3b7d3b", "#8a3ba0"}

// Page returns a page with the tables and plots of reports of one workload, a colour for each
// policy. It is one file that needs nothing else, and has no script.
func Page(reports []*Report) []byte {
	var b bytes.Buffer
	first := reports[0]
	title := html.EscapeString("Simulation: " + first.Workload)
	fmt.Fprintf(&b, pageHead, title, title)
	fmt.Fprintf(&b, "<p>%d tasks of %d jobs on %d nodes, seed %d.", first.Tasks, first.Jobs, first.Nodes, first.Seed)
	for _, note := range first.Notes {
		fmt.Fprintf(&b, " Note: %s.", html.EscapeString(note))
	}
	b.WriteString("</p>\n<p>")
	for i, r := range reports {
		fmt.Fprintf(&b, `<span class="key" style="background:%s"></span>%s &nbsp; `, colour(i),
			html.EscapeString(r.Policy))
	}
	b.WriteString("</p>\n")
	summary(&b, reports)
	b.WriteString("<h2>Over time</h2>\n<div class=\"plots\">\n")
	for _, name := range sortedKeys(first.Series.Used) {
		plot(&b, "Used "+name, reports, 1, func(s *Series) []float64 { return s.Used[name] })
	}
	plot(&b, "Tasks that run", reports, 0, func(s *Series) []float64 { return numbers(s.Running) })
	plot(&b, "Tasks that wait", reports, 0, func(s *Series) []float64 { return numbers(s.Waiting) })
	plot(&b, "Fragmentation of "+first.Series.FragmentationOf, reports, 1,
		func(s *Series) []float64 { return s.Fragmentation })
	plot(&b, "Fairness between leaves that wait (Jain)", reports, 1, func(s *Series) []float64 { return s.Fairness })
	b.WriteString("</div>\n<h2>Waits by queue</h2>\n")
	groups(&b, reports, func(r *Report) []Group { return r.Queues })
	if first.Then != nil {
		b.WriteString("<h2>Waits beside those of then</h2>\n")
		besideThen(&b, reports)
	}
	b.WriteString("<h2>Waits by owner</h2>\n")
	groups(&b, reports, func(r *Report) []Group { return r.Owners })
	b.WriteString("</body></html>\n")
	return b.Bytes()
}

const pageHead = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1080px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 1.8em; }
table { border-collapse: collapse; } th, td { padding: .25em .9em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; }
td:not(:first-child) { white-space: nowrap; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 1.2em; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #555; }
.key { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin-right: .4em; vertical-align: -1px; }
</style></head><body>
<h1>%s</h1>
`

func colour(i int) string { return colours[i%len(colours)] }

func numbers(list []int) []float64 {
	out := make([]float64, len(list))
	for i, n := range list {
		out[i] = float64(n)
	}
	return out
}

// summary writes a row for each policy.
func summary(b *bytes.Buffer, reports []*Report) {
	b.WriteString("<table><tr><th>policy</th><th>placed</th><th>ended</th><th>waiting</th><th>refused</th>" +
		"<th>mean wait</th><th>p95</th><th>p99</th><th>fairness</th><th>fragmentation</th></tr>\n")
	for _, r := range reports {
		fmt.Fprintf(b, "<tr><td>%s</td><td>%d</td><td>%d</td><td>%d</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td>"+
			"<td>%.3f</td><td>%.1f %%</td></tr>\n",
			html.EscapeString(r.Policy), r.Placed, r.Ended,
			r.Waiting, r.Refused,
			spanText(r.Waits.Mean), spanText(r.Waits.P95), spanText(r.Waits.P99), r.Fairness, 100*r.Fragmentation)
	}
	b.WriteString("</table>\n")
	for _, r := range reports {
		if len(r.Causes) == 0 {
			continue
		}
		fmt.Fprintf(b, "<p>%s, at the end:</p><ul>", html.EscapeString(r.Policy))
		for _, c := range r.Causes {
			fmt.Fprintf(b, "<li>%d waiting: %s</li>", c.Tasks, html.EscapeString(c.Cause))
		}
		b.WriteString("</ul>\n")
	}
}

// groups writes a row for each queue or owner and policy.
func groups(b *bytes.Buffer, reports []*Report, of func(*Report) []Group) {
	b.WriteString("<table><tr><th>name</th><th>policy</th><th>placed</th><th>waiting</th><th>p50</th><th>p95</th>" +
		"<th>p99</th><th>longest</th></tr>\n")
	seen := map[string]bool{}
	for _, r := range reports {
		for _, g := range of(r) {
			if seen[g.Name] {
				continue
			}
			seen[g.Name] = true
			for i, other := range reports {
				for _, o := range of(other) {
					if o.Name != g.Name || o.Placed+o.Waiting == 0 {
						continue
					}
					fmt.Fprintf(b, `<tr><td>%s</td><td><span class="key" style="background:%s"></span>%s</td><td>%d</td>`+
						"<td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
						html.EscapeString(o.Name), colour(i),
						html.EscapeString(other.Policy), o.Placed, o.Waiting, spanText(o.Waits.P50),
						spanText(o.Waits.P95), spanText(o.Waits.P99), spanText(o.Waits.Max))
				}
			}
		}
	}
	b.WriteString("</table>\n")
}

// besideThen writes a row for each policy, below one for the waits of then.
func besideThen(b *bytes.Buffer, reports []*Report) {
	b.WriteString("<table><tr><th>policy</th><th>waits</th><th>waiting</th><th>mean</th><th>p50</th><th>p95</th>" +
		"<th>p99</th><th>longest</th><th>mean difference</th><th>95 % of them</th></tr>\n")
	row := func(name string, placed, waiting int, w *Waits, mean, most string) {
		fmt.Fprintf(b, "<tr><td>%s</td><td>%d</td><td>%d</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td>"+
			"<td>%s</td><td>%s</td></tr>\n", html.EscapeString(name), placed, waiting,
			spanText(w.Mean), spanText(w.P50),
			spanText(w.P95), spanText(w.P99), spanText(w.Max), mean, most)
	}
	then := reports[0].Then
	row("then", then.Placed, then.Waiting, &then.Waits, "", "")
	for _, r := range reports {
		placed := 0
		for i := range r.Queues {
			placed += r.Queues[i].Placed
		}
		d := &r.Then.Difference
		row(r.Policy, placed, r.Waiting, &r.Waits, spanText(d.Mean), "&le; "+spanText(d.P95))
	}
	b.WriteString("</table>\n")
}

// Places of a plot in its drawing.
const (
	plotWidth, plotHeight = 480, 190
	plotLeft, plotRight   = 52, 472
	plotTop, plotBottom   = 10, 165
)

// plot draws one series of all reports. top is the highest value of the axis; 0: the highest one of
// the series.
func plot(b *bytes.Buffer, title string, reports []*Report, top float64, of func(*Series) []float64) {
	percent := top == 1
	end := 0.0
	for _, r := range reports {
		for _, at := range r.Series.At {
			end = max(end, at)
		}
		for _, y := range of(&r.Series) {
			top = max(top, y)
		}
	}
	top, end = max(top, 1), max(end, 1)
	fmt.Fprintf(b, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">\n",
		html.EscapeString(title),
		plotWidth, plotHeight)
	for k := range 5 {
		y := plotBottom - float64(k)*(plotBottom-plotTop)/4
		label := axisText(top * float64(k) / 4)
		if percent {
			label = fmt.Sprintf("%.0f %%", 25*float64(k)*top)
		}
		fmt.Fprintf(b, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e3e3\"/>"+
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			plotLeft, plotRight, y, y, plotLeft-6, y+4, label)
	}
	for k, anchor := range []string{"start", "middle", "end"} {
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", plotLeft+k*(plotRight-plotLeft)/2,
			plotBottom+18, anchor, spanText(end*float64(k)/2))
	}
	for i, r := range reports {
		var points strings.Builder
		for n, y := range of(&r.Series) {
			fmt.Fprintf(&points, "%.1f,%.1f ", plotLeft+r.Series.At[n]/end*(plotRight-plotLeft),
				plotBottom-y/top*(plotBottom-plotTop))
		}
		fmt.Fprintf(b, "<polyline points=\"%s\" fill=\"none\" "+
			"stroke=\"%s\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n",
			strings.TrimSpace(points.String()), colour(i))
	}
	b.WriteString("</svg></figure>\n")
}

// spanText writes seconds in a unit that suits them.
func spanText(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.3g s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 2*3600:
		return fmt.Sprintf("%.0f min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%.1f h", s/3600)
	}
	return fmt.Sprintf("%.1f d", s/86400)
}

// axisText returns a number as it stands beside an axis, which has room for six characters.
func axisText(v float64) string {
	if v >= 10_000 {
		return strconv.FormatFloat(math.Round(v/100)/10, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
