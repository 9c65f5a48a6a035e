package qos

import "slices"

// Order returns tasks as indices in the order in which they would be acted on for a metric.
func (p *Policies) Order(tasks []Task, metric string) []int32 {
	m := p.registry.Find(metric)
	if m == nil {
		m = &Metric{}
	}
	if p.biased {
		tasks = slices.Clone(tasks)
		s := standing{allowed: make([]bool, len(p.actions))}
		for i := range tasks {
			p.stand(&tasks[i], &s)
			tasks[i].Bias = s.bias
		}
	}
	return m.sorter().Sort(tasks)
}

// Triggers returns how many samples in a row above its line each rule waits for, by nodeqos/rule.
func (p *Policies) Triggers() map[string]int32 {
	triggers := make(map[string]int32, len(p.rules))
	for i := range p.rules {
		triggers[p.rules[i].key] = p.rules[i].Trigger()
	}
	return triggers
}
