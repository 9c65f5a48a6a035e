package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
)

// nodeFlags belong to the commands that make this machine a node.
type nodeFlags struct {
	Node       string            `help:"Node id of this machine; default: its host name." env:"PLIMSOLL_NODE" placeholder:"ID"`
	Capacity   map[string]string `help:"Amounts that replace the measured ones, such as cpu=2; repeat it for more." placeholder:"NAME=AMOUNT"`
	Attributes map[string]string `help:"Attributes that are added to the measured ones, such as rack=r7. Groups can spread over them." placeholder:"NAME=VALUE"`

	Trait         pairFlags         `help:"Trait of this machine: ssd (a flag), ssd=false, or words such as gpu=a100,h100. Only groups that ask for all its traits are placed here. Repeat it for more." placeholder:"NAME[=WORD,…]"`
	Network       pairFlags         `help:"A network and its interface, such as storage=eth1; default: the interface of the network's name. Every interface that is up is a network anyway." placeholder:"NAME[=INTERFACE]"`
	Reserve       map[string]string `help:"The part of the capacity that no task gets, such as memory=0.15 or memory=15%." placeholder:"NAME=PART"`
	Overprovision map[string]string `help:"Factor by which a resource may be promised, such as cpu=4. A group that names a factor is placed only on nodes with the same one." placeholder:"NAME=RATIO"`
	MaxTasks      int32             `help:"Most tasks on this machine at once." default:"${maxTasks}" placeholder:"NUMBER"`
	TaskPids      int64             `help:"Most processes and threads of a task at once." default:"${taskPids}" placeholder:"NUMBER"`
	Release       string            `help:"Release of the platform that this machine runs, such as 7.0." placeholder:"RELEASE"`
	Platform      string            `help:"Stamp of the platform that this machine runs, such as 20260114T101500Z." placeholder:"STAMP"`
	Headnode      bool              `help:"This machine runs the control plane and takes no tasks."`
	Reservoir     bool              `help:"Keep this machine in reserve: it takes tasks only when no other node is left."`
	NextReboot    string            `help:"Next planned restart of this machine, such as 2026-12-24T03:00:00Z. Machines that stay up longer are preferred." placeholder:"INSTANT"`

	logsFlags
}

// pairFlags is a flag that may be repeated. Its value is a name, or a name and a value.
type pairFlags map[string]string

// Decode reads one use of the flag, or all of them from the file of --config.
func (p *pairFlags) Decode(ctx *kong.DecodeContext) error {
	token, err := ctx.Scan.PopValue("NAME[=VALUE]")
	if err != nil {
		return err
	}
	if *p == nil {
		*p = pairFlags{}
	}
	switch v := token.Value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			(*p)[name] = fmt.Sprint(v[name])
		}
		return nil
	case []any:
		for _, item := range v {
			if err := p.add(fmt.Sprint(item)); err != nil {
				return err
			}
		}
		return nil
	}
	return p.add(fmt.Sprint(token.Value))
}

func (p *pairFlags) add(pair string) error {
	name, value, given := strings.Cut(pair, "=")
	if _, twice := (*p)[name]; twice {
		return fmt.Errorf("%q is given twice; give it once", name)
	}
	if name == "" || given && value == "" {
		return fmt.Errorf("%q lacks a name or a value; write NAME or NAME=VALUE", pair)
	}
	(*p)[name] = value
	return nil
}

// nodeSettings is the result of parsing nodeFlags.
type nodeSettings struct {
	capacity plimsoll.Resources
	facts    plimsoll.NodeFacts
	logs     agent.LogBounds
}

func (f *nodeFlags) parse() (s nodeSettings, err error) {
	if s.logs, err = f.logsFlags.parse(); err != nil {
		return s, err
	}
	if s.capacity, err = parseCapacity(f.Capacity); err != nil {
		return s, err
	}
	s.facts = plimsoll.NodeFacts{
		Release: f.Release, Platform: f.Platform, Headnode: f.Headnode, Reservoir: f.Reservoir, MaxTasks: f.MaxTasks,
	}
	if f.MaxTasks < 1 {
		return s, plimsoll.Invalid(
			"max-tasks", "is %d; give 1 or more, or cordon the node if it is to take none", f.MaxTasks,
		)
	}
	if f.TaskPids < 1 {
		return s, plimsoll.Invalid("task-pids", "is %d; give 1 or more", f.TaskPids)
	}
	if s.facts.Traits, err = parseTraits(f.Trait); err != nil {
		return s, err
	}
	if s.facts.Reserve, err = parseRatios("reserve", f.Reserve, "0.15 or 15%"); err != nil {
		return s, err
	}
	if s.facts.Overprovision, err = parseRatios("overprovision", f.Overprovision, "4"); err != nil {
		return s, err
	}
	if f.NextReboot != "" {
		at, err := time.Parse(time.RFC3339, f.NextReboot)
		if err != nil {
			return s, plimsoll.Invalid(
				"next-reboot", "%q is not an instant; write for example 2026-12-24T03:00:00Z", f.NextReboot,
			)
		}
		s.facts.NextReboot = at.Unix()
	}
	return s, s.facts.Validate("")
}

// parseTraits reads traits. No value, true and false are boolean; any other value is a list of
// words.
func parseTraits(pairs map[string]string) (map[string]plimsoll.Trait, error) {
	traits := make(map[string]plimsoll.Trait, len(pairs))
	for _, pair := range plimsoll.SortedPairs(pairs) {
		name, value := pair[0], pair[1]
		if value == "" || value == "true" || value == "false" {
			traits[name] = plimsoll.Trait{Flag: value != "false"}
			continue
		}
		words := strings.Split(value, ",")
		if slices.Contains(words, "") {
			return nil, plimsoll.Invalid(
				"trait."+name, "%q holds an empty word; write words with commas between them, such as a100,h100", value,
			)
		}
		traits[name] = plimsoll.Trait{Words: words}
	}
	return traits, nil
}

// parseRatios reads numbers. A number may be a percentage.
func parseRatios(flag string, pairs map[string]string, such string) (map[string]float64, error) {
	ratios := make(map[string]float64, len(pairs))
	for _, pair := range plimsoll.SortedPairs(pairs) {
		digits, percent := strings.CutSuffix(pair[1], "%")
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return nil, plimsoll.Invalid(flag+"."+pair[0], "%q is not a number; write for example %s", pair[1], such)
		}
		if percent {
			v /= 100
		}
		ratios[pair[0]] = v
	}
	return ratios, nil
}
