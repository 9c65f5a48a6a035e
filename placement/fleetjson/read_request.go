package fleetjson

import (
	"encoding/json"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// ReadRequest reads a request from a JSON object. The fields owner, job, group, resources,
// constraints and preferences are those of a job file. Further fields are needs, platforms (a list
// of {"min", "max"}), ownOnly and anyClass. The first field that cannot be used is an error that
// names it.
func ReadRequest(data []byte) (placement.Request, error) {
	raw, err := document(data)
	if err != nil {
		return placement.Request{}, err
	}
	r := newReader()
	q := r.request(raw)
	if r.err == nil {
		r.err = q.Validate()
	}
	if r.err != nil {
		return placement.Request{}, r.err
	}
	return q, nil
}

func (r *reader) request(raw json.RawMessage) placement.Request {
	var q placement.Request
	if first(raw) != '{' {
		r.fail("the request is %s; write an object", what(raw))
		return q
	}
	r.object(
		raw,
		member{"owner", r.text(&q.Owner)},
		member{"job", r.text(&q.Job)},
		member{"group", r.text(&q.Group)},
		member{"resources", r.amounts(&q.Resources)},
		member{"constraints", r.constraints(&q.Constraints)},
		member{"preferences", r.preferences(&q.Preferences)},
		member{"needs", r.amounts(&q.Needs)},
		member{"platforms", func(raw json.RawMessage) {
			r.list(raw, func(raw json.RawMessage) {
				var p plimsoll.PlatformRange
				r.platform(&p)(raw)
				q.Platforms = append(q.Platforms, p)
			})
			if len(q.Platforms) > plimsoll.MaxReleases {
				r.fail("has %d entries; at most %d are possible", len(q.Platforms), plimsoll.MaxReleases)
			}
		}},
		member{"ownOnly", r.flag(&q.OwnOnly)},
		member{"anyClass", r.flag(&q.AnyClass)},
		member{"except", func(raw json.RawMessage) {
			r.list(raw, func(raw json.RawMessage) {
				var x placement.Exclusion
				r.object(raw, member{"server", r.text(&x.Server)}, member{"why", r.text(&x.Why)})
				q.Except = append(q.Except, x)
			})
		}},
	)
	return q
}

func (r *reader) constraints(c *plimsoll.Constraints) read {
	return func(raw json.RawMessage) {
		r.object(
			raw,
			member{"traits", r.traits(&c.Traits)},
			member{"networks", r.networks(&c.Networks)},
			member{"platform", r.platform(&c.Platform)},
			member{"volumesFrom", r.texts(&c.VolumesFrom)},
			member{"near", r.selectors(&c.Near)},
			member{"far", r.selectors(&c.Far)},
			member{"spread", r.spreads(&c.Spread, true)},
			member{"nodes", r.texts(&c.Nodes)},
			member{"reservoir", word(r, &c.Reservoir, plimsoll.ParseReservoirUse, "last, never, only")},
			member{"class", r.ratios(&c.Class)},
			member{"where", r.text(&c.Where)},
		)
	}
}

func (r *reader) preferences(p *plimsoll.Preferences) read {
	return func(raw json.RawMessage) {
		r.object(
			raw,
			member{"near", r.selectors(&p.Near)},
			member{"far", r.selectors(&p.Far)},
			member{"spread", r.spreads(&p.Spread, false)},
			member{
				"strategy",
				word(r, &p.Strategy, plimsoll.ParseStrategy, "default, pack, spread, fewest-of-owner, random"),
			},
		)
	}
}

// word reads one of a few words.
func word[T any](r *reader, into *T, parse func(string) (T, bool), known string) read {
	return func(raw json.RawMessage) {
		var text string
		r.text(&text)(raw)
		value, ok := parse(text)
		if !ok {
			r.fail("%q is not known; use %s", plimsoll.Shorten(text), known)
			return
		}
		*into = value
	}
}

// networks reads a list of names, and of lists of names of which one suffices.
func (r *reader) networks(into *[][]string) read {
	return func(raw json.RawMessage) {
		*into = [][]string{}
		r.list(raw, func(raw json.RawMessage) {
			choices := make([]string, 1)
			if first(raw) == '[' {
				r.texts(&choices)(raw)
			} else {
				r.text(&choices[0])(raw)
			}
			if len(choices) > plimsoll.MaxNetworkChoices {
				r.fail(
					"has %d networks to choose from; at most %d are possible", len(choices), plimsoll.MaxNetworkChoices,
				)
			}
			*into = append(*into, choices)
		})
	}
}

func (r *reader) platform(p *plimsoll.PlatformRange) read {
	return func(raw json.RawMessage) {
		r.object(raw, member{"min", r.stamps(&p.Min)}, member{"max", r.stamps(&p.Max)})
	}
}

// stamps reads one stamp for all releases, or a stamp for each.
func (r *reader) stamps(into *map[string]string) read {
	return func(raw json.RawMessage) {
		if first(raw) == '"' {
			var stamp string
			r.text(&stamp)(raw)
			*into = map[string]string{"": stamp}
			return
		}
		r.textMap(into)(raw)
		if len(*into) > plimsoll.MaxReleases {
			r.fail("has %d entries; at most %d are possible", len(*into), plimsoll.MaxReleases)
		}
	}
}

func (r *reader) selectors(into *[]plimsoll.Selector) read {
	return func(raw json.RawMessage) {
		r.list(raw, func(raw json.RawMessage) {
			var s plimsoll.Selector
			r.object(
				raw, member{"task", r.text(&s.Task)}, member{"job", r.text(&s.Job)}, member{"label", r.text(&s.Label)},
			)
			given := 0
			for _, text := range [...]string{s.Task, s.Job, s.Label} {
				if text != "" {
					given++
				}
			}
			if given != 1 {
				r.fail("names %d things; give one of task, job or label, and an entry of its own for each other", given)
			}
			*into = append(*into, s)
		})
	}
}

// spreads reads a list of names and of {"by", "maxSkew"}. A constraint bounds the skew, by 1 unless
// maxSkew is given; a preference does not.
func (r *reader) spreads(into *[]plimsoll.Spread, bounded bool) read {
	return func(raw json.RawMessage) {
		r.list(raw, func(raw json.RawMessage) {
			var s plimsoll.Spread
			known := []member{{"by", r.text(&s.By)}}
			if bounded {
				s.MaxSkew = 1
				known = append(known, member{"maxSkew", r.skew(&s.MaxSkew)})
			}
			if first(raw) == '"' {
				r.text(&s.By)(raw)
			} else {
				r.object(raw, known...)
			}
			if s.By == "" {
				r.fail("does not say by what; name a label such as rack")
			}
			*into = append(*into, s)
		})
	}
}

func (r *reader) skew(into *int32) read {
	return func(raw json.RawMessage) {
		v, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil || v < 1 {
			r.fail("is %s; write a whole number from 1", shown(raw))
		}
		*into = int32(v)
	}
}
