"""What `warmd doctor` looks at: facts are gathered in `scene`, judged by one small function each."""
