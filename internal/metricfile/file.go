package metricfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// maxMetricsFile bounds the file of metrics.
const maxMetricsFile = 256 << 10

// metricEntry is a metric in the form of the file.
type metricEntry struct {
	Name               string           `yaml:"name"`
	Unit               string           `yaml:"unit"`
	Help               string           `yaml:"help"`
	ActionPriority     int              `yaml:"actionPriority"`
	Sort               *[]string        `yaml:"sort"`
	Command            []string         `yaml:"command"`
	Prometheus         *prometheusEntry `yaml:"prometheus"`
	Aggregate          string           `yaml:"aggregate"`
	Every              string           `yaml:"every"`
	Timeout            string           `yaml:"timeout"`
	Throttleable       bool             `yaml:"throttleable"`
	ThrottleQuantified bool             `yaml:"throttleQuantified"`
	Evictable          bool             `yaml:"evictable"`
	EvictQuantified    bool             `yaml:"evictQuantified"`
}

type prometheusEntry struct {
	Port    string            `yaml:"port"`
	Socket  string            `yaml:"socket"`
	URL     string            `yaml:"url"`
	Path    string            `yaml:"path"`
	Series  string            `yaml:"series"`
	Labels  map[string]string `yaml:"labels"`
	PerTask bool              `yaml:"perTask"`
}

// Load reads user-defined metrics from a YAML file: a list, of which examples/metrics.yaml shows
// every field. Unknown fields are refused. The error names the file and the line.
func Load(path string) ([]nodeqos.Metric, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMetricsFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the metrics: %w", err)
	}
	return parse(path, data)
}

func parse(name string, data []byte) (metrics []nodeqos.Metric, err error) {
	if len(data) > maxMetricsFile {
		return nil, plimsoll.Invalid(name, "is larger than the %d bytes that are read", maxMetricsFile)
	}
	entries, err := decode(name, data)
	if err != nil {
		return nil, err
	}
	if len(entries) > plimsoll.MaxMetrics {
		return nil, plimsoll.Invalid(name, "has %d metrics; a node can announce %d", len(entries), plimsoll.MaxMetrics)
	}
	for i := range entries {
		m, err := entries[i].metric()
		if err == nil {
			metrics = append(metrics, m)
			_, err = nodeqos.NewRegistry(metrics)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d, %s: %w", place(name, data, i), i+1, entries[i].Name, err)
		}
	}
	return metrics, nil
}

func decode(name string, data []byte) (entries []metricEntry, err error) {
	// The parser is a large third-party program. A panic of it is reported as an error of the
	// file.
	defer func() {
		if r := recover(); r != nil {
			err = plimsoll.Invalid(name, "cannot be read as YAML: the parser failed on it (%v)", r)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := decoder.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlError(name, err)
	}
	var more any
	if err := decoder.Decode(&more); err == nil {
		return nil, plimsoll.Invalid(name, "holds a second document; a file of metrics is one list")
	}
	return entries, nil
}

// yamlError splits the parser's error into line and message. The error's own text quotes the
// source over many lines.
func yamlError(name string, err error) error {
	var y yaml.Error
	if !errors.As(err, &y) {
		return plimsoll.Invalid(name, "%v; it must be a list of metrics", err)
	}
	msg, _, _ := strings.Cut(y.GetMessage(), "\n")
	if t := y.GetToken(); t != nil && t.Position != nil {
		name += ":" + strconv.Itoa(t.Position.Line)
	}
	return plimsoll.Invalid(name, "%s", msg)
}

// metric checks an entry and converts it to a metric.
func (e *metricEntry) metric() (m nodeqos.Metric, err error) {
	m.Metric = qos.Metric{
		Name: e.Name, Help: e.Help, Unit: e.Unit, ActionPriority: e.ActionPriority, Throttleable: e.Throttleable,
		ThrottleQuantified: e.ThrottleQuantified, Evictable: e.Evictable, EvictQuantified: e.EvictQuantified,
	}
	if builtin(e.Name) && e.Sort != nil {
		return e.resorted()
	}
	switch e.Unit { // units that are printed in a form of their own
	case "bytes":
		m.Scale = 1
	case "cores":
		m.Scale = qos.Core
	}
	if m.Every, err = durationOf("every", e.Every); err != nil {
		return m, err
	}
	if m.Timeout, err = durationOf("timeout", e.Timeout); err != nil {
		return m, err
	}
	switch e.Aggregate {
	case "", "max":
	case "sum":
		m.Sum = true
	default:
		return m, plimsoll.Invalid("aggregate", "is %q; use max or sum", e.Aggregate)
	}
	switch {
	case (len(e.Command) > 0) == (e.Prometheus != nil):
		return m, plimsoll.Invalid("command", "or prometheus says where the number comes from; give one of them")
	case e.Prometheus != nil:
		err = e.scraped(&m)
	default:
		err = e.commanded(&m)
	}
	if err != nil {
		return m, err
	}
	if err = e.actions(&m); err != nil {
		return m, err
	}
	return m, m.Validate()
}

func durationOf(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, plimsoll.Invalid(field, "is %q; give a duration with its unit, such as 5s", text)
	}
	return d, nil
}

func (e *metricEntry) commanded(m *nodeqos.Metric) error {
	if slices.Contains(e.Command, "") || !filepath.IsAbs(e.Command[0]) {
		return plimsoll.Invalid(
			"command", "is %q; give the whole path of a program and its arguments, none of them empty", e.Command,
		)
	}
	m.Measure = command(e.Command)
	return nil
}

func (e *metricEntry) scraped(m *nodeqos.Metric) error {
	p := e.Prometheus
	m.PerTask = p.PerTask
	target, err := p.target()
	if err != nil {
		return err
	}
	if !plimsoll.IsMetricName(p.Series) {
		return plimsoll.Invalid(
			"prometheus.series", "is %q; give the name of a series that the endpoint tells", p.Series,
		)
	}
	if target.perTask() && !p.PerTask {
		return plimsoll.Invalid(
			"prometheus.perTask", "is not true, but the endpoint is told by a task's labels; give perTask: true",
		)
	}
	m.Measure = (&scrape{
		endpoint: target, series: p.Series, labels: plimsoll.SortedPairs(p.Labels), sum: m.Sum,
	}).measure
	return nil
}

// target checks the address of an endpoint.
func (p *prometheusEntry) target() (endpoint, error) {
	given := 0
	for _, s := range []string{p.Port, p.Socket, p.URL} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return endpoint{}, plimsoll.Invalid("prometheus", "is told by port, socket or url; give one of them")
	}
	path := p.Path
	if path == "" {
		path = "/metrics"
	}
	if p.Path != "" && (p.URL != "" || p.Path[0] != '/') {
		return endpoint{}, plimsoll.Invalid(
			"prometheus.path", "is %q; it begins with / and is part of the url where there is one", p.Path,
		)
	}
	switch {
	case p.Port != "":
		if _, err := strconv.ParseUint(p.Port, 10, 16); err == nil {
			return newEndpoint("", "http://127.0.0.1:"+p.Port+path)
		}
		return newEndpoint("", "http://127.0.0.1:{"+p.Port+"}"+path)
	case p.Socket != "":
		if !filepath.IsAbs(p.Socket) {
			return endpoint{}, plimsoll.Invalid(
				"prometheus.socket", "is %q; give the whole path of a unix socket", p.Socket,
			)
		}
		return newEndpoint(p.Socket, "http://localhost"+path)
	}
	return newEndpoint("", p.URL)
}
