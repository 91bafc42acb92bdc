// Package template implements the verb template, which prints what a new node would publish. It needs no cluster.
package template
