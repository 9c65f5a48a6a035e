package plimsoll

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds on the constraints and preferences of one group, and on the facts of one node. A larger
// value is refused with an error that names the bound.
const (
	MaxTraits         = 64
	MaxTraitWords     = 64
	MaxNetworks       = 64   // entries of Constraints.Networks
	MaxNetworkChoices = 32   // networks in one entry
	MaxNodeNetworks   = 256  // networks of a node
	MaxReleases       = 64   // entries of PlatformRange.Min or Max
	MaxVolumesFrom    = 32   // tasks
	MaxSelectors      = 64   // entries of Near, and of Far
	MaxSpreads        = 8    // entries of Spread
	MaxNodePatterns   = 256  // entries of Constraints.Nodes
	MaxRatios         = 16   // entries of Class, Reserve or Overprovision
	MaxRatio          = 1000 // how often an amount may be promised
	MaxWhere          = 4096 // bytes
	MaxPlacementName  = 128  // bytes of one name: of a trait, a trait's word, a network, a spread or a release
)

// PlatformLayout is the form of a platform stamp, as package time writes layouts.
const PlatformLayout = "20060102T150405Z"

func (c *Constraints) validate(field string) error {
	if err := validateTraits(field+".traits", c.Traits); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Traits)) {
		if t := c.Traits[name]; t.Words != nil && len(t.Words) == 0 {
			return Invalid(
				field+".traits."+name,
				"is an empty list, which no node has; give at least one word, or true or false for a flag",
			)
		}
	}
	if err := validateNetworks(field+".networks", c.Networks); err != nil {
		return err
	}
	if err := validateReleases(field+".platform.min", c.Platform.Min); err != nil {
		return err
	}
	if err := validateReleases(field+".platform.max", c.Platform.Max); err != nil {
		return err
	}
	if err := validateLen(field+".volumesFrom", len(c.VolumesFrom), MaxVolumesFrom); err != nil {
		return err
	}
	for i, id := range c.VolumesFrom {
		if err := validateTaskID(at(field+".volumesFrom", i), id); err != nil {
			return err
		}
	}
	if err := validateSelectors(field, c.Near, c.Far); err != nil {
		return err
	}
	if err := validateSpreads(field+".spread", c.Spread); err != nil {
		return err
	}
	for i := range c.Spread {
		if c.Spread[i].MaxSkew < 1 {
			return Invalid(at(field+".spread", i)+".maxSkew", "is %d; give 1 or more", c.Spread[i].MaxSkew)
		}
	}
	return c.validateRest(field)
}

func (c *Constraints) validateRest(field string) error {
	if err := validateLen(field+".nodes", len(c.Nodes), MaxNodePatterns); err != nil {
		return err
	}
	for i, pattern := range c.Nodes {
		if !isNodePattern(pattern) {
			return Invalid(at(
				field+".nodes", i,
			), "%q is neither a node's id nor a pattern; use at most 128 letters, digits and - _ . "+
				"with * for any text and ? for one character, such as gpu-*", pattern)
		}
	}
	if !c.Reservoir.Known() {
		return Invalid(field+".reservoir", "is not known; use %s", strings.Join(reservoirNames[:], ", "))
	}
	if err := validateRatios(field+".class", c.Class); err != nil {
		return err
	}
	if len(c.Where) > MaxWhere {
		return Invalid(field+".where", "is %d bytes long; at most %d are possible", len(c.Where), MaxWhere)
	}
	if !utf8.ValidString(c.Where) || strings.IndexByte(c.Where, 0) >= 0 {
		return Invalid(field+".where", "holds a zero byte or is not UTF-8; write an expression over the node as text")
	}
	return nil
}

func (p *Preferences) validate(field string) error {
	if err := validateSelectors(field, p.Near, p.Far); err != nil {
		return err
	}
	if err := validateSpreads(field+".spread", p.Spread); err != nil {
		return err
	}
	for i := range p.Spread {
		if p.Spread[i].MaxSkew != 0 {
			return Invalid(
				at(field+".spread", i)+".maxSkew",
				"is not possible in a preference, which has no bound; move it to constraints",
			)
		}
	}
	if !p.Strategy.Known() {
		return Invalid(field+".strategy", "is not known; use %s", strings.Join(strategyNames[:], ", "))
	}
	return nil
}

// Validate reports the first fact that is wrong. field is put before its name; it may be empty.
func (f *NodeFacts) Validate(field string) error {
	if field != "" {
		field += "."
	}
	if err := validateTraits(field+"traits", f.Traits); err != nil {
		return err
	}
	if err := validateLen(field+"networks", len(f.Networks), MaxNodeNetworks); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(f.Networks)) {
		if err := validateName(field+"networks", name); err != nil {
			return err
		}
	}
	if f.Release != "" {
		if err := validateName(field+"release", f.Release); err != nil {
			return err
		}
	}
	if f.Platform != "" {
		if err := validateStamp(field+"platform", f.Platform); err != nil {
			return err
		}
	}
	if err := validateReserve(field+"reserve", f.Reserve); err != nil {
		return err
	}
	if err := validateRatios(field+"overprovision", f.Overprovision); err != nil {
		return err
	}
	if f.LastBoot < 0 {
		return Invalid(field+"lastBoot", "is negative; give seconds since 1970, or 0 if it is not known")
	}
	if f.NextReboot < 0 {
		return Invalid(field+"nextReboot", "is negative; give seconds since 1970, or 0 if none is planned")
	}
	if f.MaxTasks < 0 {
		return Invalid(
			field+"maxTasks", "is negative; give the most tasks that the node takes at once, or 0 for no bound",
		)
	}
	return validateMetrics(field+"metrics", f.Metrics)
}

func validateMetrics(field string, metrics []string) error {
	if err := validateLen(field, len(metrics), MaxMetrics); err != nil {
		return err
	}
	for i, name := range metrics {
		if !IsMetricName(name) {
			return Invalid(
				at(field, i),
				"%q is not a possible name of a metric: use 1 to 128 letters, digits and _ : starting with a letter",
				name,
			)
		}
		if i > 0 && metrics[i-1] >= name {
			return Invalid(at(field, i), "%q stands twice or out of order; give each metric once, in order", name)
		}
	}
	return nil
}

func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

func validateLen(field string, n, most int) error {
	if n > most {
		return Invalid(field, "has %d entries; at most %d are possible", n, most)
	}
	return nil
}

// validateName accepts any printable text. Operators choose these names freely.
func validateName(field, name string) error {
	if name == "" {
		return Invalid(field, "holds an empty name; give a name such as ssd")
	}
	if len(name) > MaxPlacementName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return Invalid(
			field, "%q is not a possible name: use at most %d bytes of text without control characters", name,
			MaxPlacementName,
		)
	}
	return nil
}

func validateTraits(field string, traits map[string]Trait) error {
	if err := validateLen(field, len(traits), MaxTraits); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(traits)) {
		if err := validateName(field, name); err != nil {
			return err
		}
		if n := len(traits[name].Words); n > MaxTraitWords {
			return Invalid(field+"."+name, "has %d words; at most %d are possible", n, MaxTraitWords)
		}
		for _, word := range traits[name].Words {
			if err := validateName(field+"."+name, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateNetworks(field string, networks [][]string) error {
	if err := validateLen(field, len(networks), MaxNetworks); err != nil {
		return err
	}
	for i, choices := range networks {
		field := at(field, i)
		if len(choices) == 0 {
			return Invalid(field, "is an empty list, which no node has; name at least one network")
		}
		if len(choices) > MaxNetworkChoices {
			return Invalid(
				field, "has %d networks to choose from; at most %d are possible", len(choices), MaxNetworkChoices,
			)
		}
		for _, name := range choices {
			if err := validateName(field, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func validateReleases(field string, stamps map[string]string) error {
	if err := validateLen(field, len(stamps), MaxReleases); err != nil {
		return err
	}
	for _, release := range slices.Sorted(maps.Keys(stamps)) {
		if release == "" {
			if err := validateStamp(field, stamps[release]); err != nil {
				return err
			}
			continue
		}
		if !isRelease(release) {
			return Invalid(field, "%q is not a release; write two numbers such as 7.0", release)
		}
		if err := validateStamp(field+"."+release, stamps[release]); err != nil {
			return err
		}
	}
	return nil
}

// isRelease accepts two numbers separated by a dot.
func isRelease(s string) bool {
	major, minor, dotted := strings.Cut(s, ".")
	return dotted && len(s) <= MaxPlacementName && isDigits(major) && isDigits(minor)
}

func isDigits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func validateStamp(field, stamp string) error {
	if _, err := time.Parse(PlatformLayout, stamp); err != nil || len(stamp) != len(PlatformLayout) {
		return Invalid(
			field, "%q is not the stamp of a platform; write the instant it was built, such as 20260114T101500Z", stamp,
		)
	}
	return nil
}

// validateTaskID accepts the ids that TaskID makes.
func validateTaskID(field, id string) error {
	bad := Invalid(field, "%q is not the id of a task; write job.group.index, such as wordcount.map.0", id)
	i := strings.LastIndexByte(id, '.')
	if i < 0 || len(id) > 256 {
		return bad
	}
	index, err := strconv.ParseInt(id[i+1:], 10, 32)
	if err != nil || index < 0 || index >= MaxTasksPerJob || strconv.FormatInt(index, 10) != id[i+1:] {
		return bad
	}
	j := strings.LastIndexByte(id[:i], '.')
	if j < 0 || ValidateID(field, id[:j]) != nil || validateGroupName(field, id[j+1:i]) != nil {
		return bad
	}
	return nil
}

func validateSelectors(field string, near, far []Selector) error {
	for _, list := range []struct {
		name      string
		selectors []Selector
	}{{".near", near}, {".far", far}} {
		if err := validateLen(field+list.name, len(list.selectors), MaxSelectors); err != nil {
			return err
		}
		for i := range list.selectors {
			if err := list.selectors[i].validate(at(field+list.name, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Selector) validate(field string) error {
	set := 0
	for _, text := range []string{s.Task, s.Job, s.Label} {
		if text != "" {
			set++
		}
	}
	switch {
	case set != 1:
		return Invalid(
			field, "names %d things; give one of task, job or label, and an entry of its own for each other", set,
		)
	case s.Task != "":
		return validateTaskID(field+".task", s.Task)
	case s.Job != "":
		return ValidateID(field+".job", s.Job)
	}
	key, value, ok := strings.Cut(s.Label, "=")
	if !ok || key == "" || len(key) > MaxLabelKey || len(value) > MaxLabelValue || !utf8.ValidString(s.Label) {
		return Invalid(field+".label", "%q is not a label; write key=value, such as app=db", s.Label)
	}
	return nil
}

func validateSpreads(field string, spreads []Spread) error {
	if err := validateLen(field, len(spreads), MaxSpreads); err != nil {
		return err
	}
	for i := range spreads {
		if err := validateName(at(field, i)+".by", spreads[i].By); err != nil {
			return err
		}
		for j := range i {
			if spreads[j].By == spreads[i].By {
				return Invalid(at(field, i)+".by", "%q stands in entry %d already; remove one", spreads[i].By, j)
			}
		}
	}
	return nil
}

// isNodePattern accepts the id of a node, in which * and ? may stand.
func isNodePattern(s string) bool {
	if s == "" || len(s) > MaxPlacementName {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("-_.*?", s[i]) < 0 {
			return false
		}
	}
	return true
}

func validateRatios(field string, ratios map[string]float64) error {
	if err := validateRatioNames(field, ratios); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		if r := ratios[name]; !(r > 0 && r <= MaxRatio) { // written without r <= 0, so that NaN fails too
			return Invalid(field+"."+name, "is %v; give a number above 0 and at most %d, such as 4 where an amount may be promised four times",
				r, MaxRatio)
		}
	}
	return nil
}

func validateReserve(field string, parts map[string]float64) error {
	if err := validateRatioNames(field, parts); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if p := parts[name]; !(p >= 0 && p < 1) || math.Signbit(p) {
			return Invalid(
				field+"."+name,
				"is %v; give the part of the node's capacity that is kept back, from 0 to below 1, such as 0.15", p,
			)
		}
	}
	return nil
}

func validateRatioNames(field string, ratios map[string]float64) error {
	if err := validateLen(field, len(ratios), MaxRatios); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		if err := ValidateResourceName(name); err != nil {
			return Invalid(field, "%q: %s", name, err)
		}
	}
	return nil
}
