package config

import (
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
)

// constraints reads the conditions for nodes that may take the tasks of a group. The expression of
// where is not compiled here: its errors are found when the job is submitted.
func (d *decoder) constraints(into *plimsoll.Constraints) func(v *value, path string) {
	return func(v *value, path string) {
		d.fields(v, path,
			field{"traits", d.traits(&into.Traits)},
			field{"networks", d.networks(&into.Networks)},
			field{"platform", func(v *value, path string) {
				d.fields(v, path,
					field{"min", d.stamps(&into.Platform.Min)},
					field{"max", d.stamps(&into.Platform.Max)},
				)
			}},
			field{"volumesFrom", d.texts(&into.VolumesFrom)},
			field{"near", d.selectors(&into.Near)},
			field{"far", d.selectors(&into.Far)},
			field{"spread", d.spreads(&into.Spread, true)},
			field{"nodes", d.texts(&into.Nodes)},
			field{"reservoir", word(d, &into.Reservoir, plimsoll.ParseReservoirUse, wordsFrom(plimsoll.ReservoirLast))},
			field{"class", d.ratios(&into.Class)},
			field{"where", d.text(&into.Where)},
		)
	}
}

// preferences reads the order among the possible nodes.
func (d *decoder) preferences(into *plimsoll.Preferences) func(v *value, path string) {
	return func(v *value, path string) {
		d.fields(v, path,
			field{"near", d.selectors(&into.Near)},
			field{"far", d.selectors(&into.Far)},
			field{"spread", d.spreads(&into.Spread, false)},
			field{"strategy", word(d, &into.Strategy, plimsoll.ParseStrategy, wordsFrom(plimsoll.StrategyDefault))},
		)
	}
}

// wordsFrom returns the words of an enumeration, from a first value onwards.
func wordsFrom[T interface {
	~uint8
	Known() bool
	String() string
}](first T) (words []string) {
	for x := first; x.Known(); x++ {
		words = append(words, x.String())
	}
	return words
}

// word reads one of a few words.
func word[T any](d *decoder, into *T, parse func(string) (T, bool), known []string) func(v *value, path string) {
	return func(v *value, path string) {
		x, ok := parse(v.text)
		switch {
		case v.kind != scalarKind:
			d.problem(v.line, path, "is %s; a word is expected: %s", v.kindName(), strings.Join(known, ", "))
		case !ok:
			d.problem(v.line, path, "%q is not known; %s", plimsoll.Shorten(v.text), plimsoll.Suggest(v.text, known))
		default:
			*into = x
		}
	}
}

// texts reads a list of texts.
func (d *decoder) texts(into *[]string) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var s string
			d.text(&s)(v, path)
			*into = append(*into, s)
		})
	}
}

func (d *decoder) traits(into *map[string]plimsoll.Trait) func(v *value, path string) {
	return func(v *value, path string) {
		m := map[string]plimsoll.Trait{}
		d.pairs(v, path, func(e entry, path string) { m[e.name] = d.trait(e.value, path) })
		if len(m) > 0 {
			*into = m
		}
	}
}

// trait reads true or false, a word, or a list of words. An unquoted yes or no, which other
// parsers read as true or false, is refused: no node would have it as a word.
func (d *decoder) trait(v *value, path string) plimsoll.Trait {
	switch v.kind {
	case listKind:
		t := plimsoll.Trait{Words: []string{}}
		d.texts(&t.Words)(v, path)
		return t
	case scalarKind:
		switch lower := strings.ToLower(v.text); {
		case v.quoted:
		case v.text == "true" || v.text == "false":
			return plimsoll.Trait{Flag: v.text == "true"}
		case lower == "true" || lower == "false" || lower == "yes" || lower == "no" || lower == "on" || lower == "off":
			d.problem(v.line, path, "is %s; write true or false for a flag, or put the word in quotes", v.text)
		}
		return plimsoll.Trait{Words: []string{v.text}}
	}
	d.problem(v.line, path, "is %s; true, false, a word or a list of words is expected", v.kindName())
	return plimsoll.Trait{}
}

func (d *decoder) networks(into *[][]string) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			choices := []string{}
			switch v.kind {
			case scalarKind:
				choices = append(choices, v.text)
			case listKind:
				d.texts(&choices)(v, path)
			default:
				d.problem(
					v.line, path, "is %s; the name of a network is expected, or a list of names of which one is enough",
					v.kindName(),
				)
			}
			*into = append(*into, choices)
		})
	}
}

// stamps reads one stamp for all releases, or a mapping with a stamp for each.
func (d *decoder) stamps(into *map[string]string) func(v *value, path string) {
	return func(v *value, path string) {
		switch v.kind {
		case scalarKind:
			*into = map[string]string{"": v.text}
		case mapKind:
			d.textMap(into)(v, path)
		default:
			d.problem(
				v.line, path,
				`is %s; a stamp such as 20260114T101500Z is expected, or one for each release: {"7.0": 20260114T101500Z}`,
				v.kindName(),
			)
		}
	}
}

func (d *decoder) selectors(into *[]plimsoll.Selector) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var s plimsoll.Selector
			if v.kind == scalarKind {
				d.problem(
					v.line, path, "is %s; say what it names: {task: ID}, {job: ID} or {label: KEY=VALUE}", v.kindName(),
				)
				return
			}
			d.fields(
				v, path, field{"task", d.text(&s.Task)}, field{"job", d.text(&s.Job)}, field{"label", d.text(&s.Label)},
			)
			*into = append(*into, s)
		})
	}
}

// spreads reads a list of {by: NAME} or of names. A constraint bounds the skew, by default to 1; a
// preference has no bound.
func (d *decoder) spreads(into *[]plimsoll.Spread, bounded bool) func(v *value, path string) {
	return func(v *value, path string) {
		d.list(v, path, func(v *value, path string) {
			var s plimsoll.Spread
			if bounded {
				s.MaxSkew = 1
			}
			if v.kind == scalarKind {
				s.By = v.text
				*into = append(*into, s)
				return
			}
			d.fields(v, path,
				field{"by", d.text(&s.By)},
				field{"maxSkew", func(v *value, path string) {
					if !bounded {
						d.problem(
							v.line, path, "is not possible in a preference, which has no bound; move it to constraints",
						)
						return
					}
					d.number(&s.MaxSkew)(v, path)
				}},
			)
			*into = append(*into, s)
		})
	}
}

func (d *decoder) ratios(into *map[string]float64) func(v *value, path string) {
	return func(v *value, path string) {
		m := map[string]float64{}
		d.pairs(v, path, func(e entry, path string) {
			if meant := misnamed(e.name); meant != "" {
				d.problem(e.line, path, "unknown resource; did you mean %q?", meant)
				return
			}
			r, err := strconv.ParseFloat(e.value.text, 64)
			if e.value.kind != scalarKind || e.value.quoted || err != nil {
				d.problem(e.value.line, path, "is %s; a number is expected, such as 4", e.value.kindName())
				return
			}
			m[e.name] = r
		})
		if len(m) > 0 {
			*into = m
		}
	}
}

type constraintsFile struct {
	Traits      map[string]any     `json:"traits,omitempty"`
	Networks    []any              `json:"networks,omitempty"`
	Platform    *platformFile      `json:"platform,omitempty"`
	VolumesFrom []string           `json:"volumesFrom,omitempty"`
	Near        []selectorFile     `json:"near,omitempty"`
	Far         []selectorFile     `json:"far,omitempty"`
	Spread      []spreadFile       `json:"spread,omitempty"`
	Nodes       []string           `json:"nodes,omitempty"`
	Reservoir   string             `json:"reservoir,omitempty"`
	Class       map[string]float64 `json:"class,omitempty"`
	Where       string             `json:"where,omitempty"`
}

type platformFile struct {
	Min any `json:"min,omitempty"`
	Max any `json:"max,omitempty"`
}

type selectorFile struct {
	Task  string `json:"task,omitempty"`
	Job   string `json:"job,omitempty"`
	Label string `json:"label,omitempty"`
}

type spreadFile struct {
	By      string `json:"by"`
	MaxSkew int32  `json:"maxSkew"`
}

type preferencesFile struct {
	Near     []selectorFile `json:"near,omitempty"`
	Far      []selectorFile `json:"far,omitempty"`
	Spread   []string       `json:"spread,omitempty"`
	Strategy string         `json:"strategy,omitempty"`
}

func constraintsOf(c *plimsoll.Constraints) *constraintsFile {
	if c.IsZero() {
		return nil
	}
	f := &constraintsFile{
		Traits: TraitsFile(c.Traits), VolumesFrom: c.VolumesFrom, Near: selectorsOf(c.Near), Far: selectorsOf(c.Far),
		Nodes: c.Nodes,
		Class: c.Class, Where: c.Where,
	}
	for _, choices := range c.Networks {
		f.Networks = append(f.Networks, oneOrAll(choices))
	}
	if p := &c.Platform; len(p.Min) > 0 || len(p.Max) > 0 {
		f.Platform = &platformFile{stampsOf(p.Min), stampsOf(p.Max)}
	}
	for i := range c.Spread {
		f.Spread = append(f.Spread, spreadFile(c.Spread[i]))
	}
	if c.Reservoir != plimsoll.ReservoirLast {
		f.Reservoir = c.Reservoir.String()
	}
	return f
}

func preferencesOf(p *plimsoll.Preferences) *preferencesFile {
	if p.IsZero() {
		return nil
	}
	f := &preferencesFile{Near: selectorsOf(p.Near), Far: selectorsOf(p.Far)}
	for i := range p.Spread {
		f.Spread = append(f.Spread, p.Spread[i].By)
	}
	if p.Strategy != plimsoll.StrategyDefault {
		f.Strategy = p.Strategy.String()
	}
	return f
}

// TraitsFile returns traits as values that encoding/json and FormatYAML print as in a job file. It
// returns nil if there are none.
func TraitsFile(traits map[string]plimsoll.Trait) map[string]any {
	if len(traits) == 0 {
		return nil
	}
	out := make(map[string]any, len(traits))
	for name, t := range traits {
		if t.Words == nil {
			out[name] = t.Flag
		} else {
			out[name] = oneOrAll(t.Words)
		}
	}
	return out
}

func oneOrAll(words []string) any {
	if len(words) == 1 {
		return words[0]
	}
	return words
}

func stampsOf(stamps map[string]string) any {
	if stamp, ok := stamps[""]; ok && len(stamps) == 1 {
		return stamp
	}
	if len(stamps) == 0 {
		return nil
	}
	return stamps
}

func selectorsOf(selectors []plimsoll.Selector) []selectorFile {
	var out []selectorFile
	for i := range selectors {
		out = append(out, selectorFile(selectors[i]))
	}
	return out
}
