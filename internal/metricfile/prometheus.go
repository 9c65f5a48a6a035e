package metricfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// Bounds on the answer of an endpoint: all of it, one line, and the lines of the requested series.
const (
	maxScrape       = 8 << 20
	maxScrapeLine   = 64 << 10
	maxSeriesBytes  = 256 << 10
	scrapeUserAgent = "plimsoll-qos"
)

// endpoint is the address of a Prometheus text. {name} stands for a label of the task's job,
// {task} for the task's id.
type endpoint struct {
	socket template // path of a unix socket; empty: TCP
	url    template
}

// template is text with names in between. Invariant: there is one more text than names.
type template struct{ texts, names []string }

func parseTemplate(field, s string) (t template, err error) {
	for {
		text, rest, found := strings.Cut(s, "{")
		t.texts = append(t.texts, text)
		if !found {
			return t, nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" {
			return t, plimsoll.Invalid(
				field, "%q has a { without a name and a }; {name} stands for a label of the task's job", s,
			)
		}
		t.names = append(t.names, name)
		s = after
	}
}

// fill puts in the values of a task; ok is false if the task lacks a label.
func (t *template) fill(task *nodeqos.Task) (s string, ok bool, err error) {
	var b strings.Builder
	b.WriteString(t.texts[0])
	for i, name := range t.names {
		value, ok := task.Labels[name]
		if name == "task" {
			value, ok = task.ID, true
		}
		if !ok {
			return "", false, nil
		}
		if !harmless(value) {
			return "", true, fmt.Errorf(
				"its label %s is %q, which cannot be part of an address; use letters, digits and any of - _ . in it",
				name, plimsoll.Shorten(value),
			)
		}
		b.WriteString(value)
		b.WriteString(t.texts[i+1])
	}
	return b.String(), true, nil
}

// harmless reports whether a value can only be a port or a name. It comes from the user who
// submitted the job.
func harmless(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return s != "" && len(s) <= 128 && s != "." && s != ".."
}

func newEndpoint(socket, address string) (e endpoint, err error) {
	if e.socket, err = parseTemplate("prometheus.socket", socket); err != nil {
		return e, err
	}
	if e.url, err = parseTemplate("prometheus.url", address); err != nil {
		return e, err
	}
	sample := strings.Join(e.url.texts, "1") // an example of the address
	if u, err := url.Parse(
		sample,
	); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return e, plimsoll.Invalid(
			"prometheus.url", "%q is no address; give one such as http://127.0.0.1:{metrics.port}/metrics", address,
		)
	}
	return e, nil
}

func (e *endpoint) perTask() bool { return len(e.socket.names)+len(e.url.names) > 0 }

// scrape is the request for one series of an endpoint.
type scrape struct {
	endpoint endpoint
	series   string
	labels   [][2]string // labels that the series must have
	sum      bool        // use the sum of the matching series instead of the largest
}

// measure gets the text and extracts the value of the series. A task that lacks a label of the
// address does not have the metric.
func (s *scrape) measure(ctx context.Context, t *nodeqos.Task) (value float64, ok bool, err error) {
	if t == nil {
		t = &nodeqos.Task{}
	}
	socket, ok, err := s.endpoint.socket.fill(t)
	if err != nil || !ok {
		return 0, ok, err
	}
	address, ok, err := s.endpoint.url.fill(t)
	if err != nil || !ok {
		return 0, ok, err
	}
	text, err := s.get(ctx, socket, address)
	if err == nil {
		value, err = s.find(text)
	}
	return value, true, err
}

// get returns the lines of the series. Each scrape has its own connection, so that none stays open
// for a task that has ended.
func (s *scrape) get(ctx context.Context, socket, address string) (text []byte, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	req.Header.Set("User-Agent", scrapeUserAgent)
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, res.Status)
	}
	return s.lines(res.Body)
}

// lines keeps only the lines of the series, so that a large answer costs no memory.
func (s *scrape) lines(r io.Reader) ([]byte, error) {
	var kept bytes.Buffer
	all := &io.LimitedReader{R: r, N: maxScrape + 1}
	lines := bufio.NewScanner(all)
	lines.Buffer(make([]byte, 0, 4<<10), maxScrapeLine)
	for lines.Scan() {
		if line := lines.Bytes(); s.about(line) {
			if kept.Len()+len(line) > maxSeriesBytes {
				return nil, fmt.Errorf("it tells more than %d bytes of %s", maxSeriesBytes, s.series)
			}
			kept.Write(line)
			kept.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if all.N <= 0 {
		return nil, fmt.Errorf("its answer has more than %d bytes", maxScrape)
	}
	return kept.Bytes(), nil
}

// about reports whether a line is a sample of the series, or declares its type.
func (s *scrape) about(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	if rest, comment := bytes.CutPrefix(line, []byte("# TYPE ")); comment {
		line = rest
	}
	rest, ok := bytes.CutPrefix(line, []byte(s.series))
	return ok && len(rest) > 0 && (rest[0] == '{' || rest[0] == ' ' || rest[0] == '\t')
}

// find parses the lines and combines the matching samples.
func (s *scrape) find(text []byte) (value float64, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("it is no Prometheus text: %w", err)
	}
	found := false
	for _, m := range families[s.series].GetMetric() {
		v, ok := number(m)
		if !ok || !s.fits(m) {
			continue
		}
		switch {
		case !found:
			value = v
		case s.sum:
			value += v
		case v > value || math.IsNaN(v): // NaN is not a value
			value = v
		}
		found = true
	}
	if !found {
		return 0, fmt.Errorf("it does not tell %s%s as a gauge or counter", s.series, s.wanted())
	}
	return value, nil
}

func number(m *dto.Metric) (float64, bool) {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Counter != nil:
		return m.Counter.GetValue(), true
	case m.Untyped != nil:
		return m.Untyped.GetValue(), true
	}
	return 0, false
}

func (s *scrape) fits(m *dto.Metric) bool {
	for _, want := range s.labels {
		has := false
		for _, l := range m.GetLabel() {
			has = has || l.GetName() == want[0] && l.GetValue() == want[1]
		}
		if !has {
			return false
		}
	}
	return true
}

func (s *scrape) wanted() string {
	if len(s.labels) == 0 {
		return ""
	}
	var b strings.Builder
	for i, l := range s.labels {
		b.WriteString([]string{"{", ","}[min(i, 1)] + l[0] + "=" + strconv.Quote(l[1]))
	}
	return b.String() + "}"
}
