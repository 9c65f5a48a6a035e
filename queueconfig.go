package plimsoll

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// AccessList is a list of users and groups of users, in YuniKorn's terms an ACL.
type AccessList struct {
	Everybody bool // a list that is "*"
	Users     []string
	Groups    []string
}

// Allows reports whether a user, or one of the groups that the user is in, is on the list.
func (l *AccessList) Allows(user string, groups []string) bool {
	if l == nil {
		return false
	}
	if l.Everybody || contains(l.Users, user) {
		return true
	}
	for _, group := range groups {
		if contains(l.Groups, group) {
			return true
		}
	}
	return false
}

func contains(list []string, text string) bool {
	for _, s := range list {
		if s == text {
			return true
		}
	}
	return false
}

// String returns the list as a queue file states it: users, a space, groups.
func (l *AccessList) String() string {
	switch {
	case l == nil:
		return ""
	case l.Everybody:
		return "*"
	case len(l.Groups) == 0:
		return strings.Join(l.Users, ",")
	}
	return strings.Join(l.Users, ",") + " " + strings.Join(l.Groups, ",")
}

// QueueLimit bounds what users, or groups of users, hold in a queue and all below it.
type QueueLimit struct {
	Name string // for people
	// Users and Groups name those for whom it holds. "*" is a user, or a group, that no other limit
	// of the queue names: each user by itself, but all groups together.
	Users, Groups []string
	Max           Resources // a missing amount is not limited
	MaxJobs       int32     // jobs that may run at once; 0: no limit
}

// QueueTemplate holds the settings of a queue that a placement rule makes.
type QueueTemplate struct {
	Guaranteed, Max Resources
	MaxJobs         int32
	Properties      map[string]string
}

// PartitionConfig holds the settings of a queue file that concern the whole tree.
type PartitionConfig struct {
	// Rules choose the queue of a job: the first that names a queue which the job may use. Without
	// rules a job names its queue.
	Rules []PlacementRule
	// NodeSort is the order in which nodes are tried; nil: that of the placement chain alone.
	NodeSort *NodeSort
	// NoPreemption and QuotaPreemption are kept and have no effect yet.
	NoPreemption, QuotaPreemption bool
}

// PlacementRule is a rule of YuniKorn's by which a job gets its queue.
type PlacementRule struct {
	Name   string // user, fixed, provided, tag or recovery
	Create bool   // it may name a queue that does not exist, which is then made
	Value  string // the queue of fixed, the tag of tag
	Filter *RuleFilter
	Parent *PlacementRule // it names the queue above
}

// RuleFilter says for whom a rule holds. A single entry of a list that is no plain name is a
// regular expression.
type RuleFilter struct {
	Deny          bool // it holds for all but those on the lists
	Users, Groups []string
}

// NodeSort is YuniKorn's order of nodes.
type NodeSort struct {
	Binpacking bool // nodes with less room first; otherwise those with more
	// Weights of the resources in the mean of the shares that are used; empty: memory and cpu count
	// the same, as in YuniKorn.
	Weights map[string]float64
}

// maxAccessText bounds the text of an access list, in bytes.
const maxAccessText = 16 << 10

// ParseAccessList reads an access list in YuniKorn's form: users, a space and groups, each
// separated by commas. "*" stands for everybody, for users as for groups. An empty list allows
// nobody.
func ParseAccessList(text string) (AccessList, error) {
	if len(text) > maxAccessText {
		return AccessList{}, fmt.Errorf("is longer than %d bytes; use groups", maxAccessText)
	}
	fields := strings.Fields(text)
	if len(fields) > 2 {
		return AccessList{}, fmt.Errorf(
			"%q has more than two parts; write users, one space and groups, each separated by commas", Shorten(text),
		)
	}
	if len(fields) == 1 && strings.TrimLeft(text, " \t") != text {
		fields = []string{"", fields[0]}
	}
	var list AccessList
	for i, into := range []*[]string{&list.Users, &list.Groups} {
		if i >= len(fields) {
			break
		}
		for _, name := range strings.Split(fields[i], ",") {
			if name != "" {
				*into = append(*into, name)
			}
		}
		if slices.Equal(*into, []string{"*"}) {
			return AccessList{Everybody: true}, nil
		}
	}
	return list, nil
}

// SameLimits reports whether two lists of limits are equal.
func SameLimits(a, b []QueueLimit) bool {
	return slices.EqualFunc(a, b, func(x, y QueueLimit) bool {
		return x.Name == y.Name && x.MaxJobs == y.MaxJobs && maps.Equal(x.Max, y.Max) &&
			slices.Equal(x.Users, y.Users) && slices.Equal(x.Groups, y.Groups)
	})
}
