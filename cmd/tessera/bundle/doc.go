// Package bundle implements the verb support-bundle, which collects what is needed to analyze a cluster later in one archive.
//
// Errors are recorded in the archive and do not end the collection. Secrets are not read; literal environment values, values of
// foreign annotations, commands of users' pods and arguments that may be secrets are left out.
package bundle
