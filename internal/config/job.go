package config

import (
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// ParseJob reads a job file. name is for the messages. A group without a count has one task. A
// group without a priority has that of the job. Queue paths are lower-cased as in the queue file. A
// missing queue stays empty, for the placement rules of the queues. A missing owner stays empty,
// for the caller to fill in. The error is a *Error.
func ParseJob(name string, data []byte) (plimsoll.JobSpec, error) {
	v, err := parseValue(name, data)
	if err != nil {
		return plimsoll.JobSpec{}, err
	}
	d := newDecoder(name, v)
	spec := plimsoll.JobSpec{}
	priority, ranked := int32(0), map[int]bool{} // ranked: the groups with a priority of their own
	d.fields(v, "",
		field{"job", d.text(&spec.ID)},
		field{"owner", d.text(&spec.Owner)},
		field{"ownerGroups", d.texts(&spec.OwnerGroups)},
		field{"queue", func(v *value, path string) {
			d.text(&spec.Queue)(v, path)
			spec.Queue = strings.ToLower(spec.Queue)
		}},
		field{"tags", d.textMap(&spec.Tags)},
		field{"labels", d.textMap(&spec.Labels)},
		field{"priority", d.number(&priority)},
		field{"completing", d.duration(&spec.Completing)},
		field{"groups", func(v *value, path string) {
			d.list(v, path, func(v *value, path string) {
				g, own := d.group(v, path)
				ranked[len(spec.Groups)] = own
				spec.Groups = append(spec.Groups, g)
			})
		}},
	)
	for i := range spec.Groups {
		if !ranked[i] {
			spec.Groups[i].Priority = priority
		}
	}
	if len(d.problems) == 0 {
		d.invalid(spec.Validate())
	}
	if err := d.err(); err != nil {
		return plimsoll.JobSpec{}, err
	}
	return spec, nil
}

// group reads a group. ranked reports whether it states a priority.
func (d *decoder) group(v *value, path string) (g plimsoll.GroupSpec, ranked bool) {
	counted := false
	d.fields(v, path,
		field{"name", d.text(&g.Name)},
		field{"count", func(v *value, path string) {
			before := len(d.problems)
			counted = true
			if d.number(&g.Count)(v, path); g.Count == 0 && len(d.problems) == before {
				d.problem(v.line, path, "is 0; give 1 or more, or leave it out for one task")
			}
		}},
		field{"command", d.command(&g.Command)},
		field{"env", d.textMap(&g.Env)},
		field{"resources", func(v *value, path string) { g.Resources = d.requests(v, path) }},
		field{"retry", func(v *value, path string) { g.Retry = d.retry(v, path) }},
		field{"maxRuntime", d.duration(&g.MaxRuntime)},
		field{"killGrace", d.duration(&g.KillGrace)},
		field{"user", d.text(&g.User)},
		field{"userGroup", d.text(&g.UserGroup)},
		field{"workDir", d.text(&g.WorkDir)},
		field{"logLimit", d.quantity(plimsoll.Memory, &g.LogLimit)},
		field{"outputs", d.texts(&g.Outputs)},
		field{"constraints", d.constraints(&g.Constraints)},
		field{"preferences", d.preferences(&g.Preferences)},
		field{"class", word(d, &g.Class, plimsoll.ParseClass, wordsFrom(plimsoll.ClassBestEffort))},
		field{"priority", func(v *value, path string) {
			ranked = true
			d.number(&g.Priority)(v, path)
		}},
		field{"nodePriority", func(v *value, path string) {
			g.NodePriority = new(int32)
			d.number(g.NodePriority)(v, path)
		}},
		field{"indexes", d.numbers(&g.Indexes)},
	)
	switch {
	case counted:
	case len(g.Indexes) > 0:
		g.Count = int32(len(g.Indexes)) // a file is smaller than 2 GiB
	default:
		g.Count = plimsoll.DefaultCount
	}
	return g, ranked
}

// requests reads the resources that a task requests. A name that is nearly a known one would be a
// custom resource that no node has, and the task would wait for ever. Such a name is refused.
func (d *decoder) requests(v *value, path string) plimsoll.Resources {
	r := plimsoll.Resources{}
	d.pairs(v, path, func(e entry, path string) {
		if meant := misnamed(e.name); meant != "" {
			d.problem(e.line, path, "unknown resource; did you mean %q?", meant)
			return
		}
		var n int64
		d.quantity(e.name, &n)(e.value, path)
		r[e.name] = n
	})
	if len(r) == 0 {
		return nil
	}
	return r
}

// misnamed returns the resource that a name probably stands for; empty if the name is right.
func misnamed(name string) string {
	lower := strings.ToLower(name)
	switch lower {
	case "cpus", "vcore", "vcores", "core", "cores":
		return plimsoll.CPU
	case "mem", "ram", "memoy", "memroy", "meory", "memry", "memori":
		return plimsoll.Memory
	case "disks", "disc", "storage", "ephemeral-storage":
		return plimsoll.Disk
	case "extcpu", "ext_cpu", "ext.cpu", "extended-cpu":
		return plimsoll.ExtCPU
	case "extmemory", "ext_memory", "ext-mem", "extmem", "ext.memory", "extended-memory":
		return plimsoll.ExtMemory
	case plimsoll.CPU, plimsoll.Memory, plimsoll.Disk, plimsoll.ExtCPU, plimsoll.ExtMemory:
		if name != lower {
			return lower
		}
	}
	return ""
}

func (d *decoder) retry(v *value, path string) plimsoll.RetryPolicy {
	var p plimsoll.RetryPolicy
	var policy string
	limited := false
	before := len(d.problems)
	d.fields(v, path,
		field{"policy", func(v *value, path string) {
			d.text(&policy)(v, path)
			kind, ok := plimsoll.ParseRetryKind(policy)
			if v.kind == scalarKind && !ok {
				d.problem(
					v.line, path, "%q is no retry policy; %s", plimsoll.Shorten(policy),
					plimsoll.Suggest(policy, wordsFrom(plimsoll.RetryNone)),
				)
			}
			p.Kind = kind
		}},
		field{"limit", func(v *value, path string) {
			limited = true
			d.number(&p.Limit)(v, path)
		}},
		field{"initialDelay", d.duration(&p.InitialDelay)},
		field{"maxDelay", d.duration(&p.MaxDelay)},
	)
	if len(d.problems) > before {
		return p
	}
	switch {
	case policy == "":
		d.problem(v.line, path+".policy", "is missing; write immediate, delayed or backoff")
	case p.Kind != plimsoll.RetryNone && !limited:
		d.problem(v.line, path+".limit", "is missing; write how often a task that failed is tried again, such as 3")
	}
	return p
}

// jobFile is the printed form of a job file. The order of the fields is that of the documentation.
type jobFile struct {
	Job         string            `json:"job"`
	Owner       string            `json:"owner,omitempty"`
	OwnerGroups []string          `json:"ownerGroups,omitempty"`
	Queue       string            `json:"queue,omitempty"`
	Tags        map[string]string `json:"tags,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Completing  string            `json:"completing,omitempty"`
	Groups      []groupFile       `json:"groups"`
}

type groupFile struct {
	Name       string            `json:"name"`
	Count      int32             `json:"count"`
	Command    []string          `json:"command"`
	Env        map[string]string `json:"env,omitempty"`
	Resources  amounts           `json:"resources,omitempty"`
	Retry      *retryFile        `json:"retry,omitempty"`
	MaxRuntime string            `json:"maxRuntime,omitempty"`
	KillGrace  string            `json:"killGrace,omitempty"`
	User       string            `json:"user,omitempty"`
	UserGroup  string            `json:"userGroup,omitempty"`
	WorkDir    string            `json:"workDir,omitempty"`
	LogLimit   quantity          `json:"logLimit,omitempty"`
	Outputs    []string          `json:"outputs,omitempty"`

	Class        string `json:"class,omitempty"`
	Priority     int32  `json:"priority,omitempty"`
	NodePriority *int32 `json:"nodePriority,omitempty"`

	Constraints *constraintsFile `json:"constraints,omitempty"`
	Preferences *preferencesFile `json:"preferences,omitempty"`

	Indexes []int32 `json:"indexes,omitempty"`
}

type retryFile struct {
	Policy       string `json:"policy"`
	Limit        int32  `json:"limit"`
	InitialDelay string `json:"initialDelay,omitempty"`
	MaxDelay     string `json:"maxDelay,omitempty"`
}

// FormatJob prints a job as a job file in YAML. ParseJob reads it back to the same job. The
// token and the job that it does again are not part of a file.
func FormatJob(spec *plimsoll.JobSpec) ([]byte, error) {
	return FormatYAML(JobFile(spec))
}

// JobFile returns a job as a value that encoding/json and FormatYAML print as a job file.
func JobFile(spec *plimsoll.JobSpec) any {
	f := jobFile{
		Job: spec.ID, Owner: spec.Owner, OwnerGroups: spec.OwnerGroups, Queue: spec.Queue, Tags: spec.Tags,
		Labels: spec.Labels, Completing: FormatDuration(spec.Completing),
		Groups: make([]groupFile, len(spec.Groups)),
	}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		f.Groups[i] = groupFile{
			Name: g.Name, Count: g.Count, Command: g.Command, Env: g.Env, Resources: amountsOf(g.Resources, false),
			MaxRuntime: FormatDuration(g.MaxRuntime), KillGrace: FormatDuration(g.KillGrace),
			User: g.User, UserGroup: g.UserGroup, WorkDir: g.WorkDir, Outputs: g.Outputs,
			Class: g.Class.String(), Priority: g.Priority, NodePriority: g.NodePriority,
			Constraints: constraintsOf(&g.Constraints), Preferences: preferencesOf(&g.Preferences),
			Indexes: g.Indexes,
		}
		if g.LogLimit != 0 {
			f.Groups[i].LogLimit = quantity(plimsoll.FormatQuantity(plimsoll.Memory, g.LogLimit))
		}
		if g.Retry != (plimsoll.RetryPolicy{}) {
			f.Groups[i].Retry = &retryFile{
				Policy: g.Retry.Kind.String(), Limit: g.Retry.Limit,
				InitialDelay: FormatDuration(g.Retry.InitialDelay), MaxDelay: FormatDuration(g.Retry.MaxDelay),
			}
		}
	}
	return f
}

// FormatDuration prints a duration without units that are zero: 10m, not 10m0s. Zero is an empty
// text.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
