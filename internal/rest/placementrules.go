package rest

import (
	"strconv"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
)

// rulesInfo is the placement rules of the partition.
type rulesInfo struct {
	Partition string      `json:"partition"`
	Rules     []*ruleInfo `json:"rules,omitempty"`
}

// ruleInfo is a placement rule.
type ruleInfo struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Filter     *filterInfo       `json:"filter,omitempty"`
	ParentRule *ruleInfo         `json:"parentRule,omitempty"`
}

type filterInfo struct {
	Type      string   `json:"type"`
	UserList  []string `json:"userList,omitempty"`
	GroupList []string `json:"groupList,omitempty"`
	UserExp   string   `json:"userExp,omitempty"`
	GroupExp  string   `json:"groupExp,omitempty"`
}

// placementRules answers with the rules in force. As in YuniKorn, no rules are one, provided, and
// recovery is the last.
func (a *reading) placementRules() error {
	config, _, err := a.queueConfig()
	if err != nil {
		return err
	}
	stated := []plimsoll.PlacementRule{{Name: "provided"}}
	if p := config.Partition; p != nil && len(p.Rules) > 0 {
		stated = p.Rules
	}
	info := rulesInfo{Partition: partition}
	for i := range stated {
		info.Rules = append(info.Rules, ruleInfoOf(&stated[i]))
	}
	if last := info.Rules[len(info.Rules)-1]; last.Name != recoveryRule {
		info.Rules = append(info.Rules, ruleInfoOf(&plimsoll.PlacementRule{Name: recoveryRule}))
	}
	return a.add(info)
}

const recoveryRule = "recovery"

// ruleInfoOf returns a rule in YuniKorn's form; nil for none.
func ruleInfoOf(r *plimsoll.PlacementRule) *ruleInfo {
	if r == nil {
		return nil
	}
	name, value := strings.ToLower(r.Name), strings.ToLower(r.Value)
	info := &ruleInfo{Name: name, Parameters: map[string]string{"create": strconv.FormatBool(r.Create)}}
	switch name {
	case "fixed":
		info.Parameters["queue"] = value
		info.Parameters["qualified"] = strconv.FormatBool(queuerule.Full(value) == value)
	case "tag":
		info.Parameters["tagName"] = value
	case recoveryRule:
		info.Parameters = map[string]string{"queue": queuerule.RecoveryQueue}
	}
	if f := r.Filter; f != nil && len(f.Users)+len(f.Groups) > 0 {
		info.Filter = &filterInfo{Type: "allow"}
		if f.Deny {
			info.Filter.Type = "deny"
		}
		info.Filter.UserList, info.Filter.UserExp = listOrExpression(f.Users)
		info.Filter.GroupList, info.Filter.GroupExp = listOrExpression(f.Groups)
	}
	info.ParentRule = ruleInfoOf(r.Parent)
	return info
}

func listOrExpression(names []string) (list []string, expression string) {
	if queuerule.IsExpression(names) {
		return nil, names[0]
	}
	return names, ""
}
