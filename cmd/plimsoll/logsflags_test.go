package main

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
)

func TestFlagsOfLogs(t *testing.T) {
	for _, c := range []struct {
		flags logsFlags
		want  agent.LogBounds
		field string // of the error; empty: none
	}{
		{logsFlags{}, agent.LogBounds{}, ""},
		{
			logsFlags{"1Gi", time.Hour, 2 * time.Hour},
			agent.LogBounds{Bytes: 1 << 30, Age: time.Hour, FailedAge: 2 * time.Hour},
			"",
		},
		{logsFlags{LogsAge: 10000 * time.Hour}, agent.LogBounds{Age: 10000 * time.Hour}, ""},
		{logsFlags{LogsBytes: "63Ki"}, agent.LogBounds{}, "logs-bytes"},
		{logsFlags{LogsBytes: "-1"}, agent.LogBounds{}, "logs-bytes"},
		{logsFlags{LogsBytes: "much"}, agent.LogBounds{}, "logs-bytes"},
		{logsFlags{LogsAge: -1}, agent.LogBounds{}, "logs-age"},
		{logsFlags{FailedLogsAge: -1}, agent.LogBounds{}, "failed-logs-age"},
		{logsFlags{FailedLogsAge: 167 * time.Hour}, agent.LogBounds{}, "failed-logs-age"},
		{logsFlags{LogsAge: 2 * time.Hour, FailedLogsAge: time.Hour}, agent.LogBounds{}, "failed-logs-age"},
	} {
		got, err := c.flags.parse()
		if c.field != "" {
			if plimsoll.CodeOf(err) != plimsoll.CodeInvalid || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%+v: %v", c.flags, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.flags, got, err)
		}
	}
}

// The help and the page of limits tell the agent's defaults.
func TestDefaultsOfLogsAreTheSameInCodeHelpAndPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	hours := func(d time.Duration) string { return strings.TrimSuffix(d.String(), "0m0s") }
	for _, c := range []struct{ field, flag, value string }{
		{"LogsBytes", "--logs-bytes", plimsoll.FormatQuantity(plimsoll.Disk, agent.DefaultLogsBytes)},
		{"LogsAge", "--logs-age", hours(agent.DefaultLogsAge)},
		{"FailedLogsAge", "--failed-logs-age", hours(agent.DefaultFailedLogsAge)},
	} {
		field, _ := reflect.TypeFor[logsFlags]().FieldByName(c.field)
		if help := field.Tag.Get("help"); !strings.HasSuffix(help, "Default: "+c.value+".") {
			t.Errorf("the help of %s does not end with the default %s: %s", c.flag, c.value, help)
		}
		if want := "`" + c.flag + "`; default: `" + c.value + "`"; !strings.Contains(string(page), want) {
			t.Errorf("docs/reference/limits.md does not say %q", want)
		}
	}
}
