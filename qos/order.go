package qos

import "slices"

// Order returns the indices of tasks, in the order in which a rule on the metric acts on them.
func (p *Policies) Order(tasks []Task, metric string) []int32 {
	m := p.registry.Find(metric)
	if m == nil {
		m = &Metric{}
	}
	if p.biased {
		tasks = slices.Clone(tasks)
		s := eligibility{allowed: make([]bool, len(p.actions))}
		for i := range tasks {
			p.classify(&tasks[i], &s)
			tasks[i].Bias = s.bias
		}
	}
	return m.sorter().Sort(tasks)
}

// Triggers returns the number of readings in a row above its line after which each rule triggers,
// by nodeqos/rule.
func (p *Policies) Triggers() map[string]int32 {
	triggers := make(map[string]int32, len(p.rules))
	for i := range p.rules {
		triggers[p.rules[i].key] = p.rules[i].Trigger()
	}
	return triggers
}
